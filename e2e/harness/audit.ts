/** The operator's `audit` finds nothing lost, nothing left over and nothing under way. */
export async function nothingLost(nebo: { admin(...words: string[]): Promise<unknown> }): Promise<void> {
  const report = await nebo.admin('audit', '--settle', '60');
  expect(report).toMatchObject({ ok: true, differences: [], under_way: [] });
}
