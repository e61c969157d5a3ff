const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** An id of a path or a policy in its written form (lower case); null when it cannot be one, so that nothing has it. */
export function asUuid(text: string): string | null {
  const id = text.toLowerCase();
  return uuid.test(id) ? id : null;
}
