import { Injectable } from '@nestjs/common';
import type { Order, OrderMessage } from './order.js';

const lifetime = 3_600_000;
/** Characters kept at most over all accounts; the oldest go first. */
const mostCharacters = 16 * 1024 * 1024;

interface Remembered {
  text: string;
  until: number;
}

/**
 * Reasoning of answers that called tools, kept for an hour by account and call id. Vendors want it back with the results,
 * and some clients never send it (inference-wire.md, 1.1 and 7.5). Lives in memory: a client that comes back to another
 * replica, or after a restart, gets the next best way (`vendorRequest`).
 */
@Injectable()
export class ReasoningMemory {
  private readonly byCall = new Map<string, Remembered>();
  private characters = 0;

  remember(account: string, callIds: readonly string[], text: string): void {
    if (text === '' || text.length > mostCharacters / 16) return;
    for (const id of callIds) {
      const key = `${account}|${id}`;
      this.drop(key);
      this.byCall.set(key, { text, until: Date.now() + lifetime });
      this.characters += text.length;
    }
    for (const key of this.byCall.keys()) {
      if (this.characters <= mostCharacters) break;
      this.drop(key);
    }
  }

  /** The order with the reasoning put back that its client left out. */
  restore(order: Order, account: string): Order {
    if (!order.offer.model.reasoning || !order.messages.some(isBare)) return order;
    const messages = order.messages.map((message) => {
      const text = isBare(message) ? this.recall(account, message) : undefined;
      return text === undefined ? message : { ...message, reasoning_content: text };
    });
    return { ...order, messages };
  }

  private recall(account: string, message: OrderMessage): string | undefined {
    for (const { id } of message.tool_calls ?? []) {
      const found = this.byCall.get(`${account}|${id}`);
      if (found && found.until > Date.now()) return found.text;
    }
    return undefined;
  }

  private drop(key: string): void {
    this.characters -= this.byCall.get(key)?.text.length ?? 0;
    this.byCall.delete(key);
  }
}

const isBare = (message: OrderMessage): boolean =>
  message.tool_calls !== undefined && message.reasoning_content === undefined;
