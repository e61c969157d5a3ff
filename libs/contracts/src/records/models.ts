import { BoolField, EnumField, IntField, ListField, RecordField, StrField } from '../fields.js';

/** What a language model can do. */
export class V1ModelCapabilities {
  @BoolField({ description: 'Calls functions' })
  tools!: boolean;
  @BoolField({ description: 'Takes images' })
  vision!: boolean;
  @BoolField({ description: 'Reasons before it answers' })
  reasoning!: boolean;
}

/** A language model of the catalogue. */
export class V1Model {
  @StrField({ description: 'What is sent as `model`' })
  id!: string;
  @EnumField(['model'])
  object!: 'model';
  @StrField()
  owned_by!: string;
  @IntField({ min: 1, description: 'Tokens' })
  context_window!: number;
  @IntField({ min: 1, description: 'Tokens' })
  max_output_tokens!: number;
  @RecordField(() => V1ModelCapabilities)
  capabilities!: V1ModelCapabilities;
}

/** The catalogue as clients of all three formats read it; it carries no prices. */
export class V1ModelList {
  @EnumField(['list'])
  object!: 'list';
  @ListField(() => V1Model)
  data!: V1Model[];
}
