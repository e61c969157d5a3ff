import type { Route } from '../catalogue/catalogue.js';

/**
 * All routes in the order in which they are tried: the first by weight, then the next of the rest by weight.
 * @param random a number from 0 (included) to 1 (excluded)
 */
export function pickOrder(routes: readonly Route[], random: () => number = Math.random): Route[] {
  const rest = [...routes];
  const order: Route[] = [];
  while (rest.length > 0) {
    let at = random() * rest.reduce((sum, route) => sum + route.weight, 0);
    const index = rest.findIndex((route) => (at -= route.weight) < 0);
    order.push(...rest.splice(index === -1 ? rest.length - 1 : index, 1));
  }
  return order;
}
