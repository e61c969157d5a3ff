import { StrField } from '../fields.js';

/** A project: a folder of apps and machines inside an account. */
export class V1Project {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @StrField({ nullable: true, optional: true })
  description!: string | null;
  @StrField({ nullable: true, optional: true })
  emoji!: string | null;
}

/** Body to create a project. */
export class V1ProjectCreate {
  @StrField({ min: 1, max: 255 })
  name!: string;
  @StrField({ nullable: true, optional: true, max: 2000 })
  description?: string | null;
  @StrField({ nullable: true, optional: true, max: 16 })
  emoji?: string | null;
}

/** Body to change a project; what is absent stays. */
export class V1ProjectUpdate {
  @StrField({ optional: true, min: 1, max: 255 })
  name?: string;
  @StrField({ nullable: true, optional: true, max: 2000 })
  description?: string | null;
  @StrField({ nullable: true, optional: true, max: 16 })
  emoji?: string | null;
}
