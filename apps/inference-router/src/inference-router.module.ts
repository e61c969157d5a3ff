import { Module } from '@nestjs/common';
import { inferenceErrorBody, RUNTIME, type Runtime, type ServiceDefinition } from '@nebo/service-kit';
import { Catalogue } from './catalogue/catalogue.js';
import { loadCatalogue } from './catalogue/config-file.js';
import { Admission } from './completions/admission.js';
import { Completions } from './completions/completions.service.js';
import { ReasoningMemory } from './completions/reasoning-memory.js';
import { ChatController } from './formats/chat/chat.controller.js';
import { Generation } from './formats/generation.js';
import { ModelsController } from './models/models.controller.js';
import { Billing } from './money/billing.js';
import { PriceBook } from './money/price-book.js';
import { SettlementTable } from './money/settlement-table.js';
import { Settlements } from './money/settlements.js';
import { RequestLog } from './requests/request-log.js';
import { SimulatorUpstream } from './simulator/simulator.js';
import { HttpUpstream } from './upstreams/http-upstream.js';
import { Upstreams } from './upstreams/upstreams.js';

/** The catalogue of this process, and one line in the log about where its models run. */
function catalogueOf({ config, log }: Runtime): Catalogue {
  const catalogue = loadCatalogue(config);
  const simulated = catalogue.simulated();
  if (simulated.length > 0) {
    log.info(
      { models: simulated, file: catalogue.source },
      'these models are answered by the built-in simulator, not by real models',
    );
  }
  log.info({ models: catalogue.offers.length, file: catalogue.source }, 'model catalogue loaded');
  return catalogue;
}

/** One paid door to language models: the chat format; messages and responses come with their issue. */
@Module({
  controllers: [ModelsController, ChatController],
  providers: [
    { provide: Catalogue, useFactory: catalogueOf, inject: [RUNTIME] },
    Admission,
    Billing,
    Completions,
    Generation,
    HttpUpstream,
    PriceBook,
    ReasoningMemory,
    RequestLog,
    Settlements,
    SettlementTable,
    SimulatorUpstream,
    Upstreams,
  ],
})
export class InferenceRouterModule {}

export const inferenceRouter: ServiceDefinition = {
  name: 'inference-router',
  module: InferenceRouterModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
  doorIdentity: 'inference',
  publicPaths: ['/v1/models'],
  bodyLimit: 32 * 1024 * 1024,
  errorBody: inferenceErrorBody,
};
