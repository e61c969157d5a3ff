import { ConfigError, type Config } from '@nebo/service-kit';
import { isWithin, targetName } from '../data/names.js';

/** What an installation says about its name servers. */
export interface DnsSettings {
  /** Names that parents delegate to, absolute, lower case. */
  nameservers: readonly string[];
  /** Suffix of app addresses, absolute: no zone of an account may lie in it. */
  appsDomain: string;
  /** Seconds, of sets whose zone has no default either. */
  defaultTtl: number;
}

/** Seconds: short enough to move an address within minutes. */
const platformTtl = 300;

/**
 * `NEBO_NAMESERVERS` (comma list), by default ns1 and ns2 below `NEBO_APPS_DOMAIN`.
 * @throws ConfigError
 */
export function dnsSettings(config: Config): DnsSettings {
  const apps = `${config.text('NEBO_APPS_DOMAIN', 'apps.localhost').toLowerCase().replace(/\.$/, '')}.`;
  const given = config.list('NEBO_NAMESERVERS');
  const nameservers = (given.length > 0 ? given : [`ns1.${apps}`, `ns2.${apps}`]).map((text) => {
    const name = targetName(text);
    if (name === null || name === '.')
      throw new ConfigError(`NEBO_NAMESERVERS must be names of hosts like ns1.example.com, not "${text}"`);
    return name.toLowerCase();
  });
  return { nameservers: [...new Set(nameservers)], appsDomain: apps, defaultTtl: platformTtl };
}

/** Does a zone's name lie where the platform itself gives out names? One above it is an operator's own business. */
export const isReserved = (name: string, { appsDomain }: DnsSettings): boolean => isWithin(name, appsDomain);
