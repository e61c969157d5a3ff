import { Body, Controller, Get, HttpCode, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { formatRubles, StrField } from '@nebo/contracts';
import { Catalogue } from '../catalogue/catalogue.js';
import { priceKinds } from '../catalogue/model.js';
import { ModelSales } from '../catalogue/model-sales.js';
import { PriceBook } from '../money/price-book.js';

class ModelBody {
  @StrField({ min: 1, max: 200, description: 'Id of a model of the catalogue' })
  model!: string;
}

/** One model as the operator sees it. */
interface OperatorModel {
  id: string;
  offered: boolean;
  /** RFC 3339; null while it is for sale. */
  withdrawn_at: string | null;
  simulated: boolean;
  upstreams: { provider: string; model: string; weight: number }[];
  /** Rubles per million tokens; null when they cannot be read now. */
  prices: Record<(typeof priceKinds)[number], string> | null;
}

/** The operator's commands on models, `model list|withdraw|offer`. */
@ApiExcludeController()
@Controller('internal/v1/operator/models')
export class OperatorModelsController {
  constructor(
    private readonly catalogue: Catalogue,
    private readonly sales: ModelSales,
    private readonly prices: PriceBook,
  ) {}

  @Get()
  async list(): Promise<{ data: OperatorModel[] }> {
    const withdrawn = await this.sales.withdrawnSince();
    const data = this.catalogue.all.map(async ({ model, routes, simulated }) => {
      const tariff = await this.prices.of(model.id).catch(() => null);
      return {
        id: model.id,
        offered: !withdrawn.has(model.id),
        withdrawn_at: withdrawn.get(model.id)?.toISOString() ?? null,
        simulated,
        upstreams: routes.map(({ provider, vendorModel, weight }) => ({
          provider: provider.name,
          model: vendorModel,
          weight,
        })),
        prices: tariff
          ? {
              input: formatRubles(tariff.input),
              cache_read: formatRubles(tariff.cache_read),
              output: formatRubles(tariff.output),
            }
          : null,
      };
    });
    return { data: await Promise.all(data) };
  }

  @Post('withdraw')
  @HttpCode(200)
  async withdraw(@Body() { model }: ModelBody) {
    await this.sales.set(model, false);
    return { model, offered: false };
  }

  @Post('offer')
  @HttpCode(200)
  async offer(@Body() { model }: ModelBody) {
    await this.sales.set(model, true);
    return { model, offered: true };
  }
}
