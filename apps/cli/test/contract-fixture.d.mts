/** The OpenAPI document of the tests. */
export function contractFixture(): object;
