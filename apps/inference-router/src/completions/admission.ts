import { randomUUIDv7 } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import type { InferenceIdentity, Nano } from '@nebo/contracts';
import { checkPictures } from '../images/picture.js';
import { PriceBook } from '../money/price-book.js';
import { MoneyRefused, refusalAnswer } from '../money/refusals.js';
import { type Reserved, Settlements } from '../money/settlements.js';
import { type Tariff, worstCase } from './cost.js';
import { inputBound } from './input-bound.js';
import type { Order } from './order.js';
import type { Cancel } from './cancel.js';
import { ReasoningMemory } from './reasoning-memory.js';

/** An order whose worst case is held. */
export interface Admitted {
  order: Order;
  /** Names the request in the ledger. */
  operationId: string;
  requestId: string;
  account: string;
  key: string;
  /** The prices that count to the end, whatever becomes of the table. */
  tariff: Tariff;
  /** Upper bound of the input, tokens. */
  inputBound: number;
  held: Nano;
  /** Ends with the request: `Completions.run` must follow, or `drop`. */
  reserved: Reserved;
  startedAt: Date;
}

/** Lets requests in: price, worst case, hold (spec 8.1). */
@Injectable()
export class Admission {
  constructor(
    private readonly prices: PriceBook,
    private readonly settlements: Settlements,
    private readonly memory: ReasoningMemory,
  ) {}

  /**
   * @param gone cancelled when the client has left: a request that waits for money is dropped then
   * @throws ApiError 402 when the worst case cannot be covered, 503 when price or balance cannot be read
   */
  async admit(asked: Order, caller: InferenceIdentity, requestId: string, gone: Cancel): Promise<Admitted> {
    const startedAt = new Date();
    checkPictures(asked.messages);
    // What is put back is sent to the vendor, so it is part of the worst case.
    const order = this.memory.restore(asked, caller.account_id);
    const { model } = order.offer;
    const tariff = await this.prices.of(model.id);
    const bound = inputBound(order, model);
    // A price of nothing still asks whether the account may use inference at all.
    const held = worstCase(bound, order.ceiling, tariff) || 1n;
    const operationId = randomUUIDv7();
    const terms = {
      operationId,
      account: caller.account_id,
      key: caller.key_id,
      isLimited: caller.monthly_limit !== null,
      amount: held,
      description: `inference ${model.id}`,
      prices: tariff.refs,
    };
    const reserved = await this.settlements.reserve(terms, gone).catch((error: unknown) => {
      if (!(error instanceof MoneyRefused)) throw error;
      throw refusalAnswer(error, { amount: held, inputBound: bound, ceiling: order.ceiling, tariff });
    });
    return {
      order,
      operationId,
      requestId,
      account: caller.account_id,
      key: caller.key_id,
      tariff,
      inputBound: bound,
      held,
      reserved,
      startedAt,
    };
  }
}
