/** A tool that makes a site, or a server for one. */
export interface SiteTool {
  /** As reported, and as a value of `framework`. */
  name: string;
  /** Any of these dependencies tells it. */
  packages: readonly string[];
  /** Where there is no build script. */
  build: string;
  /** Where the site is after the build, first hit. */
  folders: readonly string[];
  /** The file that is there when a server was built, and what starts it. */
  server?: { file: string; start: string };
  /** What to do when neither is there. */
  hint?: string;
}

const nitro = { file: '.output/server/index.mjs', start: 'node .output/server/index.mjs' };

/** In the order in which they are looked for: what stands on another tool comes before it. */
export const siteTools: readonly SiteTool[] = [
  {
    name: 'nuxt',
    packages: ['nuxt', 'nuxt3'],
    build: 'npx nuxt build',
    folders: ['.output/public', 'dist'],
    server: nitro,
  },
  {
    name: 'astro',
    packages: ['astro'],
    build: 'npx astro build',
    folders: ['dist'],
    server: { file: 'dist/server/entry.mjs', start: 'node ./dist/server/entry.mjs' },
    hint: 'A server of Astro needs the adapter @astrojs/node in mode standalone.',
  },
  {
    name: 'sveltekit',
    packages: ['@sveltejs/kit'],
    build: 'npx vite build',
    folders: ['build'],
    server: { file: 'build/index.js', start: 'node build' },
    hint: 'SvelteKit needs the adapter @sveltejs/adapter-node (a server) or @sveltejs/adapter-static (a site).',
  },
  {
    name: 'react-router',
    packages: ['@react-router/dev'],
    build: 'npx react-router build',
    folders: ['build/client'],
    server: {
      file: 'build/server/index.js',
      start: './node_modules/.bin/react-router-serve ./build/server/index.js',
    },
  },
  {
    name: 'remix',
    packages: ['@remix-run/dev'],
    build: 'npx remix vite:build',
    folders: ['build/client'],
    server: {
      file: 'build/server/index.js',
      start: './node_modules/.bin/remix-serve ./build/server/index.js',
    },
  },
  {
    name: 'solid-start',
    packages: ['@solidjs/start', 'vinxi'],
    build: 'npx vinxi build',
    folders: ['.output/public', 'dist'],
    server: nitro,
  },
  { name: 'docusaurus', packages: ['@docusaurus/core'], build: 'npx docusaurus build', folders: ['build'] },
  {
    name: 'vitepress',
    packages: ['vitepress'],
    build: 'npx vitepress build',
    folders: ['.vitepress/dist', 'docs/.vitepress/dist'],
  },
  { name: 'gatsby', packages: ['gatsby'], build: 'npx gatsby build', folders: ['public'] },
  { name: 'eleventy', packages: ['@11ty/eleventy'], build: 'npx @11ty/eleventy', folders: ['_site'] },
  {
    name: 'create-react-app',
    packages: ['react-scripts'],
    build: 'npx react-scripts build',
    folders: ['build'],
  },
  {
    name: 'angular',
    packages: ['@angular/cli', '@angular/core'],
    build: 'npx ng build',
    folders: ['dist'],
  },
  {
    name: 'vue-cli',
    packages: ['@vue/cli-service'],
    build: 'npx vue-cli-service build',
    folders: ['dist'],
  },
  { name: 'parcel', packages: ['parcel'], build: 'npx parcel build', folders: ['dist'] },
  { name: 'vite', packages: ['vite'], build: 'npx vite build', folders: ['dist', 'build', 'out'] },
];
