import type { GitHost } from './git-host.js';
import { gitea } from './hosts/gitea/gitea.js';
import { gitflic } from './hosts/gitflic/gitflic.js';
import { github } from './hosts/github/github.js';
import { gitlab } from './hosts/gitlab/gitlab.js';
import { gitverse } from './hosts/gitverse/gitverse.js';

/** Every kind of git host: a line and its folder. */
export const gitHosts: readonly GitHost[] = [github, gitlab, gitea, gitverse, gitflic];
