import { exitCodeMeanings } from '../core/exit-codes.js';
import { defaultApiUrl } from '../core/settings.js';

/** Texts of `nebo help TOPIC`. */
export const helpTopics: Readonly<Record<string, () => string>> = {
  'exit-codes': () => `Example:
  nebo app show web -o json || case $? in 5) echo "no such app";; 9) echo "try again";; esac

${exitCodeMeanings.map(([code, meaning]) => `${String(code).padStart(4)}  ${meaning}`).join('\n')}
`,
  environment: () => `Example:
  NEBO_API_KEY=… NEBO_API_URL=https://cloud.example.com/v1 NEBO_APP=web nebo deploy

Order: flag, environment, folder link (.nebo-link.json), profile.

  NEBO_API_KEY   the key; there is no flag for it, since arguments are seen by every process
  NEBO_API_URL   --api-url   address of the API; default ${defaultApiUrl}
  NEBO_PROFILE   --profile   profile of the configuration
  NEBO_PROJECT   --project   project, name or id
  NEBO_APP       --app       app, name or id
  NEBO_OUTPUT    --output    table, wide, json, yaml, name
  NEBO_TIMEOUT   --timeout   90s, 5m, 1h
  NEBO_NO_INPUT  --no-input  1: never ask
  NEBO_DEBUG     --debug     1: print every request
  NEBO_PAGER, PAGER          pager for help and long tables; empty or "cat": none
  NO_COLOR, FORCE_COLOR      colour, as everywhere
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY, NODE_EXTRA_CA_CERTS   as in Node.js 24

Profiles: $XDG_CONFIG_HOME/nebo/config.json (mode 0600). A profile's key and project are used with the profile's
own address only; with another --api-url give the key as NEBO_API_KEY.
`,
  output: () => `Example:
  nebo app list -o json --jq '.[].name'

stdout holds what was asked for, stderr everything else, the exit code the truth.

  -o table   on a terminal: aligned, with titles; in a pipe: cells parted by tabs, no titles, nothing cut
             (tab, line end and backslash inside a cell are \\t, \\n, \\\\)
  -o wide    the same with more columns
  -o json    the record as the API sent it; a list is one array of records
  -o yaml    the same as YAML
  -o name    the name or id, one per line
  --columns name,created_at   any field of the record
  --jq EXPR  a jq filter over the JSON; strings without quotes

With json and yaml an error is one JSON object on stderr, {"error":{code,message,request_id,hint}}, and stdout stays
empty; notices are left out unless stderr is a terminal.
`,
};
