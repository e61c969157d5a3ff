import { ApiProperty } from '@nestjs/swagger';
import { IntField } from './fields.js';

/** `limit` and `offset` of every list. */
export class PageQuery {
  @IntField({ min: 1, max: 200, default: 50, fromText: true })
  limit: number = 50;

  @IntField({ min: 0, max: 2_147_483_647, default: 0, fromText: true })
  offset: number = 0;
}

/** One page of a list: `count` is the size of this page, `total` of the whole list as far as it is visible. */
export interface PageOf<T> {
  data: T[];
  limit: number;
  offset: number;
  count: number;
  total: number;
}

const pages = new WeakMap<object, new () => PageOf<unknown>>();

/** The page wrapper of a record, as schema `Page_<Record>_`. */
export function Page<T extends object>(record: new () => T): new () => PageOf<T> {
  let page = pages.get(record);
  if (!page) {
    class PageClass {
      @ApiProperty({ type: () => record, isArray: true })
      data!: T[];
      @ApiProperty({ type: 'integer' })
      limit!: number;
      @ApiProperty({ type: 'integer' })
      offset!: number;
      @ApiProperty({ type: 'integer', description: 'Size of this page' })
      count!: number;
      @ApiProperty({ type: 'integer', description: 'Size of the whole list, as far as it is visible' })
      total!: number;
    }
    Object.defineProperty(PageClass, 'name', { value: `Page_${record.name}_` });
    page = PageClass;
    pages.set(record, page);
  }
  return page as new () => PageOf<T>;
}

/** Puts rows into a page. */
export function pageOf<T>(data: T[], total: number, query: { limit: number; offset: number }): PageOf<T> {
  return { data, limit: query.limit, offset: query.offset, count: data.length, total };
}
