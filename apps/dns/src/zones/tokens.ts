/** Injection token of the `DnsSettings`. */
export const DNS_SETTINGS = Symbol('nebo:dns-settings');

/** Injection token of the `DnsDriver`. */
export const DNS_DRIVER = Symbol('nebo:dns-driver');
