import { Controller, Get, Param, Res } from '@nestjs/common';
import { ApiError } from '@nebo/service-kit';
import { InferenceErrorBody, Operation, PathParams, V1Model, V1ModelList } from '@nebo/contracts';
import type { FastifyReply } from 'fastify';
import { Catalogue } from '../catalogue/catalogue.js';
import { toV1Model } from './models.mapper.js';

/** The models that are offered. The list needs no key and shows no price. */
@Controller('v1/models')
export class ModelsController {
  constructor(private readonly catalogue: Catalogue) {}

  @Get()
  @Operation({
    id: 'models_list_models',
    tag: 'models',
    summary: 'The models that are offered',
    permission: [],
    resource: 'key',
    errorBody: InferenceErrorBody,
    isPublic: true,
    answer: V1ModelList,
  })
  list(@Res({ passthrough: true }) reply: FastifyReply): V1ModelList {
    if (this.catalogue.simulated().length > 0) reply.header('x-nebo-simulated', 'true');
    return { object: 'list', data: this.catalogue.offers.map(toV1Model) };
  }

  /** One model, which clients ask for with their key. */
  @Get(':id')
  @Operation({
    id: 'models_get_model',
    tag: 'models',
    summary: 'One model',
    permission: [],
    resource: 'key',
    errorBody: InferenceErrorBody,
    answer: V1Model,
  })
  @PathParams('id')
  get(@Param('id') id: string): V1Model {
    const offer = this.catalogue.get(id);
    if (!offer)
      throw new ApiError(
        404,
        'model_not_found',
        `there is no model "${id.slice(0, 100)}" in the catalogue; GET /v1/models lists all`,
      );
    return toV1Model(offer);
  }
}
