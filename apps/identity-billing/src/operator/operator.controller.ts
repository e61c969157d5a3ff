import { randomUUID } from 'node:crypto';
import { Body, Controller, Get, Headers, HttpCode, Post, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { formatRubles, type Nano, parseRubles, type PolicyStatement } from '@nebo/contracts';
import { fieldError, referenceNotFound } from '@nebo/service-kit';
import { AccountsService } from '../accounts/accounts.service.js';
import { operatorActor as actor } from '../audit/audit.service.js';
import { KeysService } from '../keys/keys.service.js';
import { BalanceService } from '../ledger/balance.service.js';
import { DepositsService } from '../ledger/deposits.service.js';
import { MembersService } from '../members/members.service.js';
import { PricesService } from '../prices/prices.service.js';
import { ProjectsService } from '../projects/projects.service.js';
import {
  AccountCreateBody,
  AccountQuery,
  DepositBody,
  InferenceKeyCreateBody,
  KeyBody,
  KeyCreateBody,
  KeyPolicyBody,
  MemberAddBody,
  MemberRoleBody,
  PrefixQuery,
  PriceSetBody,
  ProjectCreateBody,
} from './operator.dto.js';

/** The operator's commands (`npm run admin`); reached through the gateway's operator door. Amounts are decimal rubles. */
@ApiExcludeController()
@Controller('internal/v1/operator')
export class OperatorController {
  constructor(
    private readonly accounts: AccountsService,
    private readonly members: MembersService,
    private readonly projects: ProjectsService,
    private readonly keys: KeysService,
    private readonly deposits: DepositsService,
    private readonly balances: BalanceService,
    private readonly prices: PricesService,
  ) {}

  @Get('accounts')
  async listAccounts() {
    return { data: await this.accounts.list() };
  }

  @Post('account-create')
  async createAccount(@Body() body: AccountCreateBody) {
    const made = await this.accounts.create({
      name: body.name,
      topup: rubles(body.topup),
      credits: rubles(body.credits),
      actor,
    });
    return {
      ...made,
      id: made.account_id,
      name: body.name,
      balance: await this.balances.read(made.account_id),
    };
  }

  @Post('account-topup')
  @HttpCode(200)
  topUp(@Body() body: DepositBody, @Headers('x-nebo-operation') operation?: string) {
    return this.deposit('topup', body, operation);
  }

  @Post('account-credits')
  @HttpCode(200)
  addCredits(@Body() body: DepositBody, @Headers('x-nebo-operation') operation?: string) {
    return this.deposit('credit', body, operation);
  }

  private async deposit(kind: 'topup' | 'credit', body: DepositBody, operation: string | undefined) {
    const amount = rubles(body.amount);
    if (amount === 0n) throw fieldError('amount', 'must be above zero');
    const { account_id: account } = await this.known(body.account);
    const sourceId = body.operation_id ?? operation ?? randomUUID();
    const { transfer_id } = await this.deposits.deposit({
      account,
      kind,
      amount,
      service: 'operator',
      sourceId,
      actor,
    });
    return {
      account_id: account,
      transfer_id,
      amount: formatRubles(amount),
      balance: await this.balances.read(account),
    };
  }

  @Post('member-add')
  async addMember(@Body() body: MemberAddBody) {
    const { account_id: account } = await this.known(body.account);
    return { account_id: account, ...(await this.members.add(account, body.name, body.role, actor)) };
  }

  @Post('member-role')
  @HttpCode(200)
  setRole(@Body() body: MemberRoleBody) {
    return this.members.setRole(body.member.toLowerCase(), body.role, actor);
  }

  @Post('project-create')
  async createProject(@Body() body: ProjectCreateBody) {
    const account = body.account.toLowerCase();
    const project = await this.projects.createByOperator(account, body.name, actor);
    return { account_id: account, project_id: project.id, ...project };
  }

  @Get('keys')
  async listKeys(@Query() query: AccountQuery) {
    const { account_id: account } = await this.known(query.account);
    return { data: await this.keys.list(account) };
  }

  @Post('key-create')
  createKey(@Body() body: KeyCreateBody) {
    if (body.policy && (body.actions || body.resources))
      throw fieldError('policy', 'is given instead of actions and resources');
    const policy: PolicyStatement[] = body.policy ?? [
      { effect: 'allow', actions: body.actions ?? ['*'], resources: body.resources ?? ['*'] },
    ];
    return this.keys.createControl({
      account: body.account.toLowerCase(),
      name: body.name ?? '',
      actor,
      policy: policy.map(plain),
      projects: body.projects ?? null,
      ...(body.member ? { issuer: body.member.toLowerCase() } : {}),
    });
  }

  @Post('key-policy')
  @HttpCode(200)
  setPolicy(@Body() body: KeyPolicyBody) {
    return this.keys.setPolicy(body.key, body.policy.map(plain), body.projects ?? null, actor);
  }

  @Post('key-revoke')
  @HttpCode(200)
  revokeKey(@Body() body: KeyBody) {
    return this.keys.setState('control', body.key, 'revoke', actor);
  }

  @Post('key-disable')
  @HttpCode(200)
  disableKey(@Body() body: KeyBody) {
    return this.keys.setState('control', body.key, 'disable', actor);
  }

  @Post('key-enable')
  @HttpCode(200)
  enableKey(@Body() body: KeyBody) {
    return this.keys.setState('control', body.key, 'enable', actor);
  }

  @Post('inference-key-create')
  createInferenceKey(@Body() body: InferenceKeyCreateBody) {
    return this.keys.createInference({
      account: body.account.toLowerCase(),
      name: body.name ?? '',
      actor,
      monthlyLimit: body.monthly_limit === undefined ? null : rubles(body.monthly_limit),
      models: body.models ?? null,
      ...(body.member ? { issuer: body.member.toLowerCase() } : {}),
    });
  }

  @Post('inference-key-revoke')
  @HttpCode(200)
  revokeInferenceKey(@Body() body: KeyBody) {
    return this.keys.setState('inference', body.key, 'revoke', actor);
  }

  @Post('inference-key-disable')
  @HttpCode(200)
  disableInferenceKey(@Body() body: KeyBody) {
    return this.keys.setState('inference', body.key, 'disable', actor);
  }

  @Post('inference-key-enable')
  @HttpCode(200)
  enableInferenceKey(@Body() body: KeyBody) {
    return this.keys.setState('inference', body.key, 'enable', actor);
  }

  @Get('price-list')
  async listPrices(@Query() query: PrefixQuery) {
    const prices = await this.prices.list(query.prefix);
    return { data: prices.map((price) => ({ ...price, amount: formatRubles(BigInt(price.amount)) })) };
  }

  @Post('price-set')
  @HttpCode(200)
  async setPrice(@Body() body: PriceSetBody) {
    const known = (await this.prices.list(body.id)).find((price) => price.id === body.id);
    const unit = body.unit ?? known?.unit;
    if (!unit) throw fieldError('unit', 'is needed for a new price');
    const [price] = await this.prices.set(
      { prices: [{ id: body.id, amount: rubles(body.amount).toString(), unit }] },
      actor,
    );
    return { ...price, amount: formatRubles(BigInt(price!.amount)) };
  }

  /** @throws ApiError 404 naming the field */
  private async known(account: string) {
    return this.accounts.get(account).catch((error: { status?: number }) => {
      throw error.status === 404 ? referenceNotFound('account') : error;
    });
  }
}

/** Checked by the pattern of its field before. */
const rubles = (text: string | undefined): Nano => parseRubles(text ?? '0');

const plain = ({ effect, actions, resources }: PolicyStatement): PolicyStatement => ({
  effect,
  actions,
  resources,
});
