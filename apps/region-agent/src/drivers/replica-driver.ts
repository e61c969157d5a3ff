import { isDeepStrictEqual } from 'node:util';
import { type ReplicaSpec } from '@nebo/contracts';
import { type OnDemand } from '../replicas/on-demand.js';
import { ReplicaSupervisor, type SupervisorParts } from '../replicas/supervisor.js';
import { type DriverName, type ReplicaDriver, type ReplicaIo, type ReplicaObservation } from './types.js';

/** The replica driver over any way of enclosing processes. */
export class HostReplicaDriver implements ReplicaDriver {
  private readonly replicas = new Map<string, ReplicaSupervisor>();
  /** One change of an id after the other. */
  private readonly turns = new Map<string, Promise<unknown>>();

  constructor(
    readonly name: DriverName,
    private readonly parts: SupervisorParts,
  ) {}

  get isolated(): boolean {
    return this.parts.host.isolated;
  }

  async start(): Promise<void> {
    await this.parts.host.cleanUp();
    await this.parts.cache.start();
  }

  ensure(id: string, generation: number, spec: ReplicaSpec, io: ReplicaIo): Promise<ReplicaObservation> {
    return this.inTurn(id, async () => {
      const present = this.replicas.get(id);
      if (present && isDeepStrictEqual(lasting(present.spec), lasting(spec))) {
        if (present.observation.generation !== generation) present.renumber(generation);
        return present.observation;
      }
      await present?.stop();
      const replica = new ReplicaSupervisor(id, generation, spec, this.parts, io);
      this.replicas.set(id, replica);
      replica.start();
      return replica.observation;
    });
  }

  remove(id: string): Promise<void> {
    return this.inTurn(id, async () => {
      const present = this.replicas.get(id);
      await present?.stop();
      this.replicas.delete(id);
    });
  }

  list(): ReplicaObservation[] {
    return [...this.replicas.values()].map((replica) => replica.observation);
  }

  onDemand(id: string): OnDemand | null {
    return this.replicas.get(id)?.onDemand ?? null;
  }

  logs(id: string): string[] {
    return [...(this.replicas.get(id)?.lines ?? [])];
  }

  async stop(): Promise<void> {
    await Promise.all([...this.replicas.keys()].map((id) => this.remove(id)));
    await this.parts.host.close?.();
  }

  private inTurn<T>(id: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.turns.get(id) ?? Promise.resolve()).then(work);
    const settled = turn.catch(() => undefined);
    this.turns.set(id, settled);
    void settled.then(() => {
      if (this.turns.get(id) === settled) this.turns.delete(id);
    });
    return turn;
  }
}

/** What makes a replica another one: that it was ready meanwhile does not. */
const lasting = (spec: ReplicaSpec) => ({ ...spec, on_demand: spec.on_demand?.idle_ms ?? null });
