import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { type KeyResolveRequest, StrField } from '@nebo/contracts';
import { KeysService } from './keys.service.js';

class ResolveBody implements KeyResolveRequest {
  @StrField({ min: 43, max: 43, pattern: /^[A-Za-z0-9_-]+$/ })
  hash!: string;
}

@ApiExcludeController()
@Controller('internal/v1')
export class KeysInternalController {
  constructor(private readonly keys: KeysService) {}

  @Post('keys/resolve')
  @HttpCode(200)
  resolve(@Body() body: ResolveBody) {
    return this.keys.resolve(body.hash);
  }
}
