import { Controller, Get, Param, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import {
  type AcmeChallengeAnswer,
  type CertificateBytes,
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  type ServiceIdentity,
  StrField,
  V1Certificate,
} from '@nebo/contracts';
import { Caller, CallingService, forbidden } from '@nebo/service-kit';
import { CertificatesService } from './certificates.service.js';

class CertificatesQuery extends PageQuery {
  @StrField({ nullable: true, optional: true, max: 255, description: 'Only certificates for this name' })
  domain?: string | null;
}

/** `/certificates`: read only, they come and go with domains. */
@Controller('v1')
export class CertificatesController {
  constructor(private readonly certificates: CertificatesService) {}

  @Get('certificates')
  @Operation({
    id: 'certificates_list_certificates',
    tag: 'certificates',
    summary: 'List the certificates that the key may see',
    permission: 'certificate:read',
    resource: 'list',
    answer: Page(V1Certificate),
  })
  list(@Caller() caller: KeyIdentity, @Query() query: CertificatesQuery) {
    return this.certificates.list(caller, query.domain || null, query);
  }
}

/** What the edge asks (libs/contracts/src/internal/routes.ts). Keys of certificates leave this service here only. */
@ApiExcludeController()
@Controller('internal/v1')
export class EdgeCertificatesController {
  constructor(private readonly certificates: CertificatesService) {}

  @Get('certificates/:id')
  bytes(@CallingService() caller: ServiceIdentity, @Param('id') id: string): Promise<CertificateBytes> {
    requireEdge(caller);
    return this.certificates.bytes(id);
  }

  @Get('acme-challenges/:host/:token')
  challenge(
    @CallingService() caller: ServiceIdentity,
    @Param('host') host: string,
    @Param('token') token: string,
  ): Promise<AcmeChallengeAnswer> {
    requireEdge(caller);
    return this.certificates.challenge(host, token);
  }
}

/** @throws ApiError 403 */
function requireEdge({ service }: ServiceIdentity): void {
  if (service !== 'edge') throw forbidden('being the edge');
}
