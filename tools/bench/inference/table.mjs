/** Rows of the table: one figure of all lanes, a goal, and whether it is met. */

const columns = [
  ['raw', 'raw'],
  ['pass', 'pass-through'],
  ['least', 'by dispatch'],
  ['one', 'ours, one process'],
  ['split', 'ours, across processes'],
  ['peer', 'peer'],
];

/**
 * @param {string} figure what is measured, with its unit
 * @param {Record<string, number>} values by lane
 * @param {{ digits?: number, goal?: Record<string, number>, atLeast?: boolean, of?: Record<string, number> }} more
 *   `goal` by lane; `atLeast`: more is better; `of`: what stands in brackets behind each value
 */
export function row(figure, values, { digits = 1, goal = {}, atLeast = false, of: beside = {} } = {}) {
  const known = Object.entries(goal).filter(([id]) => values[id] !== undefined);
  const isMet = ([id, bound]) => (atLeast ? values[id] >= bound : values[id] <= bound);
  const bounds = [...new Set(Object.values(goal))];
  const text = (id) => {
    if (values[id] === undefined) return '';
    const extra = beside[id] === undefined ? '' : ` (+ ${beside[id].toFixed(digits)})`;
    return `${values[id].toFixed(digits)}${extra}`;
  };
  const missed = known.filter((one) => !isMet(one));
  let verdict = '';
  if (known.length > 0) {
    if (missed.length === 0) verdict = 'met';
    else if (missed.length === known.length) verdict = 'missed';
    else verdict = `missed ${missed.map(([id]) => columns.find(([one]) => one === id)[1]).join(', ')}`;
  }
  return [
    figure,
    ...columns.map(([id]) => text(id)),
    bounds.map((bound) => `${atLeast ? '≥' : '≤'} ${bound}`).join('; '),
    verdict,
  ];
}

/** A figure in words instead of numbers. */
export const said = (figure, words, goal = '', verdict = '') => [figure, ...words, goal, verdict];

/** The rows as a Markdown table. */
export function table(rows) {
  const head = ['figure', ...columns.map(([, name]) => name), 'goal', 'verdict'];
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}
