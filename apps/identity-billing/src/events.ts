import { keyChanged } from '@nebo/contracts';

/** All that this service says. It hears nothing: what others must tell it comes by internal operations. */
export const says = { keyChanged };
