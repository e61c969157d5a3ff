import type { Route } from '../catalogue/catalogue.js';

/**
 * All routes in the order in which they are tried: by priority, the lowest number first; among those of one priority the
 * first by weight, then the next of the rest by weight.
 * @param random a number from 0 (included) to 1 (excluded)
 */
export function pickOrder(routes: readonly Route[], random: () => number = Math.random): Route[] {
  if (routes.length === 1) return [...routes];
  const rest = [...routes];
  const order: Route[] = [];
  while (rest.length > 0) {
    const first = Math.min(...rest.map((route) => route.priority));
    const level = rest.filter((route) => route.priority === first);
    let at = random() * level.reduce((sum, route) => sum + route.weight, 0);
    const chosen = level.find((route) => (at -= route.weight) < 0) ?? level.at(-1)!;
    rest.splice(rest.indexOf(chosen), 1);
    order.push(chosen);
  }
  return order;
}
