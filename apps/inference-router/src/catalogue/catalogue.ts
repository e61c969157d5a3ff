import type { Dialect, Fields } from '../dialects/dialect.js';
import type { UpstreamLimits } from '../upstreams/limits.js';
import type { CatalogueModel, Level, ModelPrices } from './model.js';

/** A vendor's account as the operator configured it. */
export interface Provider {
  name: string;
  /** Without a slash at the end; `/chat/completions` is appended. Null: the built-in simulator. */
  baseUrl: string | null;
  /** Null: no key is sent. */
  apiKey: string | null;
  dialect: Dialect;
  /** What the file says of its limits, milliseconds; the settings hold for what is absent. */
  limits?: Partial<UpstreamLimits>;
  /** Does it fetch links to pictures itself, or must it be sent their bytes? Absent: as its dialect says. */
  images?: 'links' | 'bytes';
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
  /** Share of the requests among the routes of the same priority. */
  weight: number;
  /** Lower numbers are tried first. */
  priority: number;
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

/** The models of this installation: which there are is fixed at start, which are for sale is the operator's word. */
export class Catalogue {
  private readonly byId: ReadonlyMap<string, Offer>;
  private forSale: ReadonlyMap<string, Offer>;

  constructor(
    /** All models, withdrawn ones too: their prices stay known for what runs. */
    readonly all: readonly Offer[],
    /** Prices that the operator's file sets; they become new versions at start. */
    readonly priceOverrides: ReadonlyMap<string, Partial<ModelPrices>>,
    /** The file's path; null without one. */
    readonly source: string | null,
  ) {
    this.byId = new Map(all.map((offer) => [offer.model.id, offer]));
    this.forSale = this.byId;
  }

  /** The models that are for sale. */
  get offers(): readonly Offer[] {
    return [...this.forSale.values()];
  }

  /** A model that is for sale. */
  get(id: string): Offer | undefined {
    return this.forSale.get(id);
  }

  /** Is it a model of the catalogue, for sale or not? */
  knows(id: string): boolean {
    return this.byId.has(id);
  }

  /** From now on just these are not for sale. Ids that the catalogue does not know are passed over. */
  withdraw(ids: readonly string[]): void {
    const gone = new Set(ids);
    this.forSale = new Map(this.all.filter(({ model }) => !gone.has(model.id)).map((o) => [o.model.id, o]));
  }

  /** Ids of the models that the simulator answers. */
  simulated(): string[] {
    return this.offers.filter((offer) => offer.simulated).map((offer) => offer.model.id);
  }
}
