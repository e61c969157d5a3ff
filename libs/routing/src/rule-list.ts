import type { CompiledPattern, Condition } from './compiled.js';
import type { Conditions, RoutedRequest } from './request.js';
import type { Match } from './matcher.js';

interface Listed {
  pattern: CompiledPattern;
  has: Condition[];
  missing: Condition[];
}

/** A rule that a request meets, and what it found there. */
export interface Met<Rule> {
  rule: Rule;
  groups: readonly (string | undefined)[];
  found: ReadonlyMap<string, string>;
}

interface Ready<Rule> {
  order: number;
  rule: Rule;
  /** Made when it is first needed: most rules of a large file are never asked. */
  match: Match | null;
}

const none: readonly never[] = [];
const nothingFound: ReadonlyMap<string, string> = new Map();

/**
 * Rules in their order. Most begin with a name that is written out, so a request looks only at those of its own first name
 * and at those that may begin with anything.
 */
export class RuleList<Rule extends Listed> {
  private readonly byFirst = new Map<string, Ready<Rule>[]>();
  private readonly others: Ready<Rule>[] = [];

  constructor(rules: readonly Rule[]) {
    for (const [order, rule] of rules.entries()) {
      const ready = { order, rule, match: null };
      const { first } = rule.pattern;
      if (first === null) this.others.push(ready);
      else {
        const known = this.byFirst.get(first);
        if (known) known.push(ready);
        else this.byFirst.set(first, [ready]);
      }
    }
  }

  /** The rules that a request meets, in order. @throws RulesTooSlow */
  *met(request: RoutedRequest, conditions: Conditions): Generator<Met<Rule>> {
    const { path } = request;
    const end = path.indexOf('/', 1);
    const own = this.byFirst.get(end < 0 ? path.slice(1) : path.slice(1, end)) ?? none;
    const { others } = this;
    for (let one = 0, other = 0; one < own.length || other < others.length;) {
      const isOwn = other >= others.length || (one < own.length && own[one]!.order < others[other]!.order);
      const ready = isOwn ? own[one++]! : others[other++]!;
      const { rule } = ready;
      if (!path.startsWith(rule.pattern.prefix)) continue;
      conditions.checkTime();
      const hit = (ready.match ??= conditions.make(rule.pattern))(path);
      if (!hit) continue;
      const found = rule.has.length === 0 ? nothingFound : conditions.all(rule.has);
      if (found && !conditions.any(rule.missing)) yield { rule, groups: hit.groups, found };
    }
  }
}
