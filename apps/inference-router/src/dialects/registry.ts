import { deepseek } from './deepseek/deepseek.js';
import type { Dialect } from './dialect.js';
import { mimo } from './mimo/mimo.js';
import { minimax } from './minimax/minimax.js';
import { moonshot } from './moonshot/moonshot.js';
import { openai } from './openai/openai.js';
import { qwen } from './qwen/qwen.js';
import { zhipu } from './zhipu/zhipu.js';

/** All dialects, one line each: removing a vendor is deleting its folder and its line. */
export const dialects: Readonly<Record<string, Dialect>> = {
  openai,
  zhipu,
  moonshot,
  qwen,
  deepseek,
  mimo,
  minimax,
};
