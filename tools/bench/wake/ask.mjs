import { request } from 'node:http';

/**
 * One GET on a new connection.
 * @returns {Promise<{ status: number, sentAt: number, firstAt: number, marks: { start: string, began: number, boot: number } }>}
 *   times in milliseconds since 1970; `began` and `boot` as `app.mjs` says them
 */
export function coldAnswer(target) {
  return new Promise((done, failed) => {
    const sentAt = performance.timeOrigin + performance.now();
    const call = request({ path: '/', agent: false, ...target }, (answer) => {
      const firstAt = performance.timeOrigin + performance.now();
      answer.resume();
      const mark = (name) => answer.headers[`x-${name}`];
      const marks = { start: mark('start'), began: Number(mark('began')), boot: Number(mark('boot')) };
      answer
        .once('end', () => done({ status: answer.statusCode, sentAt, firstAt, marks }))
        .once('error', failed);
    });
    call.once('error', failed).end();
  });
}
