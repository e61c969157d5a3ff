import { MasterKey } from '@nebo/service-kit';

const prefix = 'nebo1.';

/**
 * Reasoning text as clients carry it for us in `encrypted_content`: some give the item back only when it has that field
 * (inference-wire.md, 3). It opens for the account that it was made for, and for nobody else.
 */
export class ReasoningSeal {
  private readonly vault: MasterKey;

  constructor(masterKey: Pick<MasterKey, 'derive'>) {
    // A key of its own: so many random nonces must not wear the key of stored secrets.
    this.vault = new MasterKey(masterKey.derive('reasoning'));
  }

  /** @returns `nebo1.` and the sealed text in base64url */
  seal(text: string, account: string): string {
    return prefix + this.vault.seal(text, account).toString('base64url');
  }

  /** The text; null when it was changed, belongs to another account, or is not ours. */
  open(sealed: unknown, account: string): string | null {
    if (typeof sealed !== 'string' || !sealed.startsWith(prefix)) return null;
    try {
      return this.vault.open(Buffer.from(sealed.slice(prefix.length), 'base64url'), account);
    } catch {
      return null;
    }
  }
}
