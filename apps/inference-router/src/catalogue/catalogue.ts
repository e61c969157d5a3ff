import type { Dialect, Fields } from '../dialects/dialect.js';
import type { CatalogueModel, Level, ModelPrices } from './model.js';

/** A vendor's account as the operator configured it. */
export interface Provider {
  name: string;
  /** Without a slash at the end; `/chat/completions` is appended. Null: the built-in simulator. */
  baseUrl: string | null;
  /** Null: no key is sent. */
  apiKey: string | null;
  dialect: Dialect;
}

/** How one host of a model differs from its vendor's way to switch reasoning. */
export interface ReasoningOverride {
  off?: Fields;
  on?: Fields;
  levels?: Partial<Record<Level, Fields>>;
}

/** One of the places where a model runs. */
export interface Route {
  provider: Provider;
  /** What the provider calls the model. */
  vendorModel: string;
  weight: number;
  dialect: Dialect;
  reasoning?: ReasoningOverride;
}

/** A model that is offered: what it is and where it runs. */
export interface Offer {
  model: CatalogueModel;
  routes: readonly Route[];
  /** Is every one of its routes the built-in simulator? */
  simulated: boolean;
}

/** The models of this installation, fixed at start. */
export class Catalogue {
  private readonly byId: ReadonlyMap<string, Offer>;

  constructor(
    readonly offers: readonly Offer[],
    /** Prices that the operator's file sets; they become new versions at start. */
    readonly priceOverrides: ReadonlyMap<string, Partial<ModelPrices>>,
    /** The file's path; null without one. */
    readonly source: string | null,
  ) {
    this.byId = new Map(offers.map((offer) => [offer.model.id, offer]));
  }

  get(id: string): Offer | undefined {
    return this.byId.get(id);
  }

  /** Ids of the models that the simulator answers. */
  simulated(): string[] {
    return this.offers.filter((offer) => offer.simulated).map((offer) => offer.model.id);
  }
}
