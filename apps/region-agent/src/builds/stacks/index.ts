import { type Stack } from '../plan.js';
import { dockerfile } from './dockerfile/index.js';
import { go } from './go/index.js';
import { next } from './next/index.js';
import { node, nodeFile } from './node/index.js';
import { nx } from './nx/index.js';
import { python } from './python/index.js';
import { sites } from './sites/index.js';
import { staticSite } from './static/index.js';

/** Every kind of source, in the order in which they are tried. A kind goes with its line here and its folder. */
export const stacks: readonly Stack[] = [dockerfile, nx, next, sites, node, go, python, nodeFile, staticSite];
