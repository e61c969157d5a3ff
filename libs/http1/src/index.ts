export { type AnswerLimits, answerLimits, AnswerParser, type AnswerSink } from './answer-parser.js';
export { type AnswerHandler, type Connect, Http1Connection, type Http1Times } from './connection.js';
export { Http1Error, type Http1ErrorCode } from './errors.js';
export { Http1Pool, type Http1PoolOptions, type Http1Target } from './pool.js';
export { Http1Reactor } from './reactor.js';
export { type Http1Request } from './request.js';
