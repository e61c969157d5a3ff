import { type ApiError, fieldError } from '@nebo/service-kit';
import type { GitHost } from './git-host.js';

/**
 * The address of a self-hosted git host in one form: no slash, query or credentials at its end.
 * @throws Error with what it must be
 */
export function cleanAddress(text: string): string {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new Error('must be an address like https://git.example.org');
  }
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw new Error('must begin with https://');
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '')
    throw new Error('must not have credentials, a query or a fragment');
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '');
}

/** The same for the field of a body. @throws ApiError 422 */
export function baseAddress(text: string): string {
  try {
    return cleanAddress(text);
  } catch (error) {
    throw fieldError('base_url', (error as Error).message);
  }
}

/** What is wrong with an address, or with there being none. */
export function addressRefused({ provider }: GitHost, base: string | null): ApiError {
  return base === null
    ? fieldError('base_url', `${provider} is self-hosted: its address is needed`)
    : fieldError('base_url', `${provider} is known as a hosted git host only; leave the address out`);
}
