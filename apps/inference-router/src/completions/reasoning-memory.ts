import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import type { Order, OrderMessage, ToolCall } from './order.js';

const lifetime = 3_600_000;
/** Characters kept at most over all accounts; the oldest go first. */
const mostCharacters = 16 * 1024 * 1024;
/** Answers kept at most under one id. */
const mostOfOneId = 1_024;

interface Remembered {
  /** Of the call: its name and its arguments. */
  call: string;
  /** Of the message that the answer followed. */
  before: string;
  text: string;
  until: number;
}

/**
 * Reasoning of answers that called tools, kept for an hour by account and call id. Vendors want it back with the results,
 * and some clients never send it (inference-wire.md, 1.1 and 7.5). Some vendors count their ids anew in every answer
 * (`read:0`), so what was called and what stood before tells answers of one id apart: the thoughts of another turn, or of
 * another conversation, would mislead the model. Lives in memory: a client that comes back to another replica, or after a
 * restart, gets the next best way (`vendorRequest`).
 */
@Injectable()
export class ReasoningMemory {
  private readonly byId = new Map<string, Remembered[]>();
  private characters = 0;

  /** @param history what was asked: the answer follows its last message */
  remember(
    account: string,
    history: readonly OrderMessage[],
    calls: readonly ToolCall[],
    text: string,
  ): void {
    if (text === '' || text.length > mostCharacters / 16) return;
    const before = placeOf(history.at(-1));
    for (const call of calls) {
      const key = `${account}|${call.id}`;
      const known = this.byId.get(key) ?? [];
      // The key of what was used last stands last.
      this.byId.delete(key);
      this.byId.set(key, known);
      known.push({ call: nameOf(call), before, text, until: Date.now() + lifetime });
      this.characters += text.length;
      if (known.length > mostOfOneId) this.dropOldest(key, known);
    }
    for (const [key, known] of this.byId) {
      while (this.characters > mostCharacters && known.length > 0) this.dropOldest(key, known);
      if (this.characters <= mostCharacters) break;
    }
  }

  /** The order with the reasoning put back that its client left out. */
  restore(order: Order, account: string): Order {
    if (!order.offer.model.reasoning || !order.messages.some(isBare)) return order;
    const messages = order.messages.map((message, index) => {
      const text = isBare(message) ? this.recall(account, message, order.messages[index - 1]) : undefined;
      return text === undefined ? message : { ...message, reasoning_content: text };
    });
    return { ...order, messages };
  }

  private recall(
    account: string,
    message: OrderMessage,
    previous: OrderMessage | undefined,
  ): string | undefined {
    const now = Date.now();
    for (const call of message.tool_calls ?? []) {
      const known = this.byId.get(`${account}|${call.id}`)?.filter(({ until }) => until > now) ?? [];
      const found = known.length > 0 ? pick(known, call, previous) : undefined;
      if (found) return found.text;
    }
    return undefined;
  }

  private dropOldest(key: string, known: Remembered[]): void {
    this.characters -= known.shift()?.text.length ?? 0;
    if (known.length === 0) this.byId.delete(key);
  }
}

/** Clients may write arguments anew, or change what stands before, but hardly both. */
function pick(
  known: readonly Remembered[],
  call: ToolCall,
  previous: OrderMessage | undefined,
): Remembered | undefined {
  const name = nameOf(call);
  const same = known.filter((one) => one.call === name);
  if (same.length === 1) return same[0];
  const before = placeOf(previous);
  return (same.length > 0 ? same : known).findLast((one) => one.before === before);
}

const digest = (...parts: string[]): string =>
  createHash('sha256').update(JSON.stringify(parts)).digest('base64').slice(0, 22);

function nameOf({ function: { name, arguments: args } }: ToolCall): string {
  try {
    return digest(name, JSON.stringify(JSON.parse(args || '{}')));
  } catch {
    return digest(name, args);
  }
}

const placeOf = (message: OrderMessage | undefined): string =>
  message ? digest(message.role, JSON.stringify(message.content)) : '';

const isBare = (message: OrderMessage): boolean =>
  message.tool_calls !== undefined && message.reasoning_content === undefined;
