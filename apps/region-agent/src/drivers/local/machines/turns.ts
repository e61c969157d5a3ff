/** One piece of work after the other for each name. */
export class NamedTurns {
  private readonly turns = new Map<string, Promise<unknown>>();

  take<T>(name: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.turns.get(name) ?? Promise.resolve()).then(work);
    const settled = turn.catch(() => undefined);
    this.turns.set(name, settled);
    void settled.then(() => {
      if (this.turns.get(name) === settled) this.turns.delete(name);
    });
    return turn;
  }
}
