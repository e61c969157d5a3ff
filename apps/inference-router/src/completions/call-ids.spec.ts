import { CallIds, withVendorIds } from './call-ids.js';
import type { OrderMessage } from './order.js';

const asked = (id: string): OrderMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id, type: 'function', function: { name: 'f', arguments: '{}' } }],
});
const result = (id: string): OrderMessage => ({ role: 'tool', tool_call_id: id, content: 'x' });

describe('ids of calls', () => {
  it("are the vendor's own while each is the only one", () => {
    const ids = new CallIds([asked('read:0'), result('read:0')]);
    expect(['write:0', 'functions.read:1', 'call_1'].map((id) => ids.toldFor(id))).toEqual([
      'write:0',
      'functions.read:1',
      'call_1',
    ]);
    const history = [asked('read:0'), result('read:0'), asked('x_nebo'), result('x_nebo')];
    expect(withVendorIds(history)).toBe(history);
  });

  it('are told apart where a vendor counts anew, and come back to it as it wrote them', () => {
    let history: OrderMessage[] = [];
    for (let turn = 0; turn < 3; turn += 1) {
      const ids = new CallIds(history);
      const told = ['read:0', 'read:0', 'read:1'].map((id) => ids.toldFor(id));
      history = [...history, ...told.flatMap((id) => [asked(id), result(id)])];
    }
    expect(new Set(history.map(({ tool_call_id: id }) => id)).size).toBe(10);
    const turn = ['read:0', 'read:0', 'read:1'].flatMap((id) => [asked(id), result(id)]);
    expect(withVendorIds(history)).toEqual([...turn, ...turn, ...turn]);
  });
});
