import { appsBuilder } from '@nebo/apps-builder';
import { compute } from '@nebo/compute';
import { dns } from '@nebo/dns';
import { identityBilling } from '@nebo/identity-billing';
import { inferenceRouter } from '@nebo/inference-router';
import { networking } from '@nebo/networking';
import type { ContractPlan, ServiceDefinition } from '@nebo/service-kit';

/** Every service of the installation; the first ones are asked by the others. */
export const services: readonly ServiceDefinition[] = [
  identityBilling,
  compute,
  networking,
  dns,
  appsBuilder,
  inferenceRouter,
];

/** The two contracts and which services they are made of. */
export const contractPlans: Readonly<Record<'v1' | 'inference', ContractPlan>> = {
  v1: {
    title: 'Nebo control API',
    description:
      'Cloud resources and apps of one account. Every operation needs a key as `Authorization: Bearer <key>`.',
    definitions: services.filter((service) => service !== inferenceRouter),
  },
  inference: {
    title: 'Nebo inference API',
    description: 'Language models, paid per token from the balance of the key’s account.',
    definitions: [inferenceRouter],
  },
};
