/** 8-4-4-4-12 hex digits: an id. Anything else that a user types is a name. */
export function isId(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
}
