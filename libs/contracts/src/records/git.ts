import { BoolField, EnumField, IntField, StrField, TimeField } from '../fields.js';
import { gitProviders } from './apps.js';

/** Words of `V1GitConnection.status`: `error` needs its owner, the reason says what for. */
export const gitConnectionStatuses = ['active', 'error'] as const;
/** Words of `V1GitConnection.auth`: what opens it. */
export const gitAuths = ['token', 'oauth', 'installation'] as const;
/** Words of `V1GitAuthorization.status`. */
export const gitAuthorizationStatuses = ['pending', 'connected', 'failed', 'expired'] as const;
/** Words of `V1AppDelivery.outcome`. */
export const deliveryOutcomes = ['accepted', 'ignored', 'refused'] as const;

/** An account at a git host whose repositories apps may be built from. Its token is never shown. */
export class V1GitConnection {
  @StrField()
  id!: string;
  @EnumField(gitProviders)
  provider!: string;
  @StrField({ nullable: true, description: 'Address of a self-hosted git host; null for the hosted one' })
  base_url!: string | null;
  @StrField({ description: 'Name of the account at the git host' })
  login!: string;
  @StrField()
  name!: string;
  @EnumField(gitAuths, {
    description:
      'A token that somebody made, a person’s grant to the OAuth app, or an installation of the app',
  })
  auth!: string;
  @StrField()
  status!: string;
  @StrField({ nullable: true, optional: true, description: 'Why the status is error, and what to do' })
  status_reason!: string | null;
  @TimeField({ nullable: true, optional: true })
  created_at!: string | null;
  @TimeField({ nullable: true, optional: true, description: 'When the token was last seen to work' })
  checked_at!: string | null;
}

/** Body to connect a git host; an account that is connected already gets the new token. */
export class V1GitConnectionCreate {
  @EnumField(gitProviders)
  provider!: string;
  @StrField({ min: 1, max: 4096, description: 'Access token of the git host; stored encrypted, never shown' })
  token!: string;
  @StrField({
    nullable: true,
    optional: true,
    max: 500,
    description: 'Needed for every self-hosted git host',
  })
  base_url?: string | null;
  @StrField({ nullable: true, optional: true, max: 255, description: 'The name at the git host when absent' })
  name?: string | null;
}

/** Body to connect a git host by its OAuth app. */
export class V1GitAuthorizationCreate {
  @EnumField(gitProviders)
  provider!: string;
  @StrField({
    nullable: true,
    optional: true,
    max: 500,
    description: 'Needed for every self-hosted git host',
  })
  base_url?: string | null;
  @StrField({ nullable: true, optional: true, max: 255, description: 'The name at the git host when absent' })
  name?: string | null;
  @StrField({
    nullable: true,
    optional: true,
    description: 'A connection to reconnect; another account at the git host is refused then',
  })
  connection_id?: string | null;
  @BoolField({
    optional: true,
    default: false,
    description: 'By installing the app in an account instead of a person’s grant (github)',
  })
  installation?: boolean;
}

/** The way of a person through a git host, which ends in a connection. */
export class V1GitAuthorization {
  @StrField()
  id!: string;
  @EnumField(gitProviders)
  provider!: string;
  @StrField({ nullable: true, description: 'Address of a self-hosted git host; null for the hosted one' })
  base_url!: string | null;
  @EnumField(gitAuthorizationStatuses)
  status!: string;
  @StrField({ nullable: true, optional: true, description: 'Why nothing was connected' })
  status_reason!: string | null;
  @StrField({
    nullable: true,
    optional: true,
    description: 'To be opened in a browser by whoever shall be connected; in the answer of the create only',
  })
  authorize_url!: string | null;
  @StrField({ nullable: true, optional: true, description: 'The connection that came of it' })
  connection_id!: string | null;
  @TimeField({ nullable: true, optional: true })
  created_at!: string | null;
  @TimeField({ nullable: true, optional: true, description: 'Until when somebody has to come back' })
  expires_at!: string | null;
}

/** A repository that a connection reaches. */
export class V1GitRepository {
  @StrField()
  id!: string;
  @StrField({ description: 'What `repo_full_name` of an app takes' })
  full_name!: string;
  @StrField({ nullable: true })
  default_branch!: string | null;
  @BoolField()
  private!: boolean;
}

/** One message of a git host about an app's repository, and what became of it. */
export class V1AppDelivery {
  @StrField()
  id!: string;
  @StrField()
  connection_id!: string;
  @StrField({ description: 'push, ping, or what the git host called it' })
  event!: string;
  @StrField({ nullable: true, optional: true })
  branch!: string | null;
  @StrField({ nullable: true, optional: true })
  commit_sha!: string | null;
  @EnumField(deliveryOutcomes)
  outcome!: string;
  @StrField({ description: 'Why, as a sentence' })
  reason!: string;
  @StrField({ nullable: true, optional: true, description: 'The build that it led to, once there is one' })
  build_id!: string | null;
  @IntField({ description: 'How often the same came; repeats do not start a build' })
  repeats!: number;
  @TimeField({ nullable: true, optional: true })
  received_at!: string | null;
}
