import { Inject, Injectable } from '@nestjs/common';
import { type ApiError, badRequest, RUNTIME, type Runtime } from '@nebo/service-kit';
import { createSafeClient, parseAllowList, type SafeClient, SafeNetFailed } from '@nebo/safe-net';
import type { Route } from '../catalogue/catalogue.js';
import type { Order, OrderMessage, OrderPart } from '../completions/order.js';
import {
  eachPicture,
  imageTooLarge,
  pictureLimit,
  trulyLabelled,
  typeOf,
  unsupportedImage,
} from './picture.js';

/** Most pictures that are fetched for one request, and how many at a time. */
const mostPictures = 20;
const atOnce = 4;
/** Milliseconds for all of them together. */
const fetchTime = 20_000;
/** Most bytes of all fetched pictures of a request. */
const allBytes = 64 * 1024 * 1024;

/**
 * Pictures on their way to vendors. One that takes links fetches them itself, so they go on untouched; for one that needs
 * bytes they are fetched here, through the guarded client alone: a client's link must not reach what only we can reach.
 * A picture that cannot be had is an error, never a text in its place.
 */
@Injectable()
export class Images {
  private readonly client: SafeClient;
  /** A second attempt at another vendor fetches nothing again. */
  private readonly done = new WeakMap<Order, Order>();

  constructor(@Inject(RUNTIME) runtime: Pick<Runtime, 'config'>) {
    this.client = createSafeClient({ allow: parseAllowList(runtime.config.optional('NEBO_SAFE_NET_ALLOW')) });
  }

  /**
   * The order as the route's vendor takes its pictures: itself where there are none.
   * @throws ApiError 400 `image_unavailable`, `image_too_large`, `unsupported_image`, naming the message; or the abort's
   * reason
   */
  async forRoute(order: Order, route: Route, signal: AbortSignal): Promise<Order> {
    if (!hasPicture(order.messages)) return order;
    const way = route.provider.images ?? route.dialect.images ?? 'links';
    const links = way === 'links' || route.provider.baseUrl === null ? noLinks : linksOf(order.messages);
    if (links.size === 0) return { ...order, messages: order.messages.map((one) => replaced(one, noLinks)) };
    const known = this.done.get(order);
    if (known) return known;
    const fetched = await this.fetchAll(links, signal);
    const ready = { ...order, messages: order.messages.map((message) => replaced(message, fetched)) };
    this.done.set(order, ready);
    return ready;
  }

  /** @param links each link with the place where it stands first */
  private async fetchAll(
    links: ReadonlyMap<string, string>,
    signal: AbortSignal,
  ): Promise<Map<string, string>> {
    if (links.size > mostPictures) {
      const at = [...links.values()][mostPictures]!;
      throw badRequest(
        'image_unavailable',
        `${at}: at most ${mostPictures} linked pictures are fetched for one request; send others as data: URIs`,
      );
    }
    const stop = new AbortController();
    const forward = () => stop.abort(signal.reason);
    signal.addEventListener('abort', forward, { once: true });
    const deadline = Date.now() + fetchTime;
    const fetched = new Map<string, string>();
    const queue = [...links];
    let bytes = 0;
    const work = async () => {
      for (let next = queue.shift(); next; next = queue.shift()) {
        const [url, at] = next;
        const picture = await this.fetchOne(url, at, deadline, stop.signal);
        bytes += picture.length;
        if (bytes > allBytes)
          throw badRequest('image_too_large', `${at}: all pictures together are too large`);
        fetched.set(url, `data:${typeOf(picture)};base64,${picture.toString('base64')}`);
      }
    };
    try {
      signal.throwIfAborted();
      await Promise.all(Array.from({ length: atOnce }, work));
      return fetched;
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      // One that fails ends the others.
      queue.length = 0;
      stop.abort();
      signal.removeEventListener('abort', forward);
    }
  }

  private async fetchOne(url: string, at: string, deadline: number, signal: AbortSignal): Promise<Buffer> {
    const timeoutMs = deadline - Date.now();
    if (timeoutMs <= 0) throw unavailable(at, 'the pictures took too long');
    let picture: Buffer;
    try {
      const { status, body } = await this.client.request(url, {
        headers: { accept: 'image/png, image/jpeg, image/webp, image/gif' },
        signal,
        maxBytes: pictureLimit,
        timeoutMs,
      });
      if (status !== 200) throw unavailable(at, `its server answered ${status}`);
      picture = body;
    } catch (error) {
      throw explained(error, at);
    }
    if (typeOf(picture) === null) throw unsupportedImage(at, 'the link leads to no picture');
    return picture;
  }
}

const unavailable = (at: string, why: string): ApiError =>
  badRequest('image_unavailable', `${at}: the picture cannot be fetched: ${why}`);

function explained(error: unknown, at: string): unknown {
  if (error instanceof SafeNetFailed && error.kind === 'too_large') return imageTooLarge(at);
  const words = (error as { publicMessage?: unknown }).publicMessage;
  return typeof words === 'string' ? unavailable(at, words) : error;
}

function linksOf(messages: readonly OrderMessage[]): Map<string, string> {
  const links = new Map<string, string>();
  eachPicture(messages, (url, at) => {
    if (!/^data:/i.test(url) && !links.has(url)) links.set(url, at);
  });
  return links;
}

const noLinks: ReadonlyMap<string, string> = new Map();

/** Is there any picture in a history? */
export const hasPicture = (messages: readonly OrderMessage[]): boolean =>
  messages.some(
    ({ content }) =>
      typeof content !== 'string' && content?.some((part: OrderPart) => part.type === 'image_url'),
  );

/** The message with bytes in the place of links that were fetched, and every label true. */
function replaced(message: OrderMessage, fetched: ReadonlyMap<string, string>): OrderMessage {
  const { content } = message;
  if (typeof content === 'string' || content === null) return message;
  return {
    ...message,
    content: content.map((part): OrderPart => {
      if (part.type !== 'image_url') return part;
      const { url } = part.image_url;
      return {
        type: 'image_url',
        image_url: { ...part.image_url, url: fetched.get(url) ?? trulyLabelled(url) },
      };
    }),
  };
}
