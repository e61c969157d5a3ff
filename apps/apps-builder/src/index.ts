export * from './apps-builder.module.js';
export { gitConfigSetting, loadOAuthApps, type OAuthApp } from './git/oauth/oauth-apps.js';
