import { HttpException, NotFoundException } from '@nestjs/common';
import {
  ApiError,
  billingUnavailable,
  errorAnswer,
  fieldError,
  notFound,
  unsupportedMediaType,
} from './errors.js';
import { inferenceErrorBody } from './inference-errors.js';

describe('error answers', () => {
  it('show code and message of what a caller may see', () => {
    expect(errorAnswer(notFound(), 'r')).toMatchObject({
      status: 404,
      body: { error: { code: 'not_found' } },
    });
    expect(errorAnswer(unsupportedMediaType('application/gzip'), 'r').status).toBe(415);
  });

  it('carry more fields for programs, in both shapes, and never instead of code and message', () => {
    const fields = { affordable_max_tokens: 120, code: 'other', details: { available: '7' } };
    const answer = errorAnswer(new ApiError(402, 'insufficient_balance', 'no money', { fields }), 'r');
    expect(answer.body.error).toEqual({
      affordable_max_tokens: 120,
      code: 'insufficient_balance',
      message: 'no money',
      details: { available: '7' },
    });
    const error = {
      type: 'billing_error',
      code: 'insufficient_balance',
      message: 'no money',
      affordable_max_tokens: 120,
      details: { available: '7' },
    };
    expect(inferenceErrorBody('/v1/chat/completions', answer)).toEqual({ error });
    expect(inferenceErrorBody('/v1/messages?beta=true', answer)).toEqual({ type: 'error', error });
  });

  it('422 has the fields in both forms', () => {
    const { body } = errorAnswer(fieldError('name', 'is taken'), 'r');
    expect(body).toMatchObject({
      error: { code: 'validation_error', message: 'name: is taken', details: [{ loc: ['body', 'name'] }] },
      detail: [{ msg: 'is taken' }],
    });
  });

  it('a 5xx shows the request id and nothing of the inside', () => {
    const answer = errorAnswer(new Error('password=hunter2 at /srv/db.ts:1'), 'req-1');
    expect(answer).toMatchObject({
      status: 500,
      body: { error: { code: 'internal_error', request_id: 'req-1' } },
    });
    expect(JSON.stringify(answer)).not.toContain('hunter2');
    expect(JSON.stringify(errorAnswer(billingUnavailable(new Error('hunter2')), 'req-1'))).not.toContain(
      'hunter2',
    );
  });

  it.each([
    [new NotFoundException('Cannot GET /x'), 404, 'unknown_operation'],
    [new HttpException('x', 413), 413, 'payload_too_large'],
    [Object.assign(new Error('x'), { statusCode: 400 }), 400, 'bad_request'],
    [new HttpException('x', 418), 500, 'internal_error'],
    [Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }), 503, 'unavailable'],
    [Object.assign(new Error('the database system is starting up'), { code: '57P03' }), 503, 'unavailable'],
    [Object.assign(new Error('a row is there already'), { code: '23505' }), 500, 'internal_error'],
    [null, 500, 'internal_error'],
    ['text', 500, 'internal_error'],
  ])('%p is %i %s', (error, status, code) => {
    expect(errorAnswer(error, 'r')).toMatchObject({ status, body: { error: { code } } });
  });

  it('hands headers on', () => {
    expect(
      errorAnswer(new ApiError(429, 'x', 'y', { headers: { 'retry-after': '3' } }), 'r').headers[
        'retry-after'
      ],
    ).toBe('3');
  });
});
