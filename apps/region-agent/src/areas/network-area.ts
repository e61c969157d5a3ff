import { type AgentKind } from '@nebo/contracts';
import { VpcWorker } from '../reconcile/vpc-worker.js';
import { type Worker } from '../reconcile/worker.js';
import { Area } from './area.js';

/** Private networks. */
export class NetworkArea extends Area {
  readonly service = 'networking';

  protected override clear(listed: ReadonlySet<string>): Promise<void> {
    return this.removeStrays('vpc', listed, this.parts.drivers().networks);
  }

  protected override makeWorker(kind: AgentKind, id: string): Worker | null {
    const { networks: driver } = this.parts.drivers();
    return kind === 'vpc'
      ? new VpcWorker(id, { driver, reporter: this.reporter, log: this.parts.log })
      : null;
  }
}
