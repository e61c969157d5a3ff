/** What can be waited for here; the payloads of the database's notifications. */
export type Topic = `wanted:${string}` | `inventory:${string}` | `vm:${string}` | `backup:${string}`;
