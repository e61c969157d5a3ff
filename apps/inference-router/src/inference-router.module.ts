import { Module } from '@nestjs/common';
import { inferenceErrorBody, RUNTIME, type Runtime, type ServiceDefinition } from '@nebo/service-kit';
import { Catalogue } from './catalogue/catalogue.js';
import { loadCatalogue } from './catalogue/config-file.js';
import { ModelSales } from './catalogue/model-sales.js';
import { Admission } from './completions/admission.js';
import { Completions } from './completions/completions.service.js';
import { ReasoningMemory } from './completions/reasoning-memory.js';
import { ChatController } from './formats/chat/chat.controller.js';
import { Formats, generationRoutes } from './formats/formats.js';
import { Generation } from './formats/generation.js';
import { MessagesController } from './formats/messages/messages.controller.js';
import { ResponsesController } from './formats/responses/responses.controller.js';
import { ResponsesFormat } from './formats/responses/responses.format.js';
import { Images } from './images/images.js';
import { ModelsController } from './models/models.controller.js';
import { OperatorModelsController } from './models/operator-models.controller.js';
import { Billing } from './money/billing.js';
import { PriceBook } from './money/price-book.js';
import { Clock } from './money/clock.js';
import { MoneyMetrics } from './money/money-metrics.js';
import { Purses } from './money/purses.js';
import { RouterFolder } from './money/router-folder.js';
import { LOG_DISK, logDisk, Settlements } from './money/settlements.js';
import { InferenceFigures } from './requests/inference-figures.js';
import { RequestLog } from './requests/request-log.js';
import { SimulatorUpstream } from './simulator/simulator.js';
import { Breakers } from './upstreams/breakers.js';
import { Deadlines } from './upstreams/deadlines.js';
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
  log.info({ models: catalogue.all.length, file: catalogue.source }, 'model catalogue loaded');
  return catalogue;
}

/** The folder where this router keeps its name and its settlements. Two processes cannot have the same. */
const folderOf = ({ config, home }: Runtime): Promise<RouterFolder> =>
  RouterFolder.take(config.text('NEBO_INFERENCE_DIR', `${home}/inference-router`));

/** One paid door to language models, in the formats of chat completions, messages and responses. */
@Module({
  controllers: [
    ModelsController,
    OperatorModelsController,
    ChatController,
    MessagesController,
    ResponsesController,
  ],
  providers: [
    { provide: Catalogue, useFactory: catalogueOf, inject: [RUNTIME] },
    { provide: RouterFolder, useFactory: folderOf, inject: [RUNTIME] },
    { provide: LOG_DISK, useFactory: logDisk, inject: [RouterFolder] },
    Admission,
    Billing,
    Breakers,
    Clock,
    Completions,
    Deadlines,
    Formats,
    Generation,
    HttpUpstream,
    Images,
    InferenceFigures,
    ModelSales,
    MoneyMetrics,
    PriceBook,
    Purses,
    ReasoningMemory,
    RequestLog,
    ResponsesFormat,
    Settlements,
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
  direct: { routes: generationRoutes, handler: Generation },
};
