/** Sources that are built: files by path, and the commands that a person would give by hand. */

const npm = (build) => ['npm ci --no-audit --no-fund', build].filter(Boolean).join(' && ');

const next = {
  'package.json': JSON.stringify({
    name: 'web',
    version: '1.0.0',
    private: true,
    scripts: { build: 'next build', start: 'next start' },
    dependencies: { next: '^16.0.0', react: '^19.0.0', 'react-dom': '^19.0.0' },
  }),
  'next.config.mjs': `export default { output: 'export' };\n`,
  'app/layout.jsx':
    'export default function Layout({ children }) {\n  return <html><body>{children}</body></html>;\n}\n',
};
for (let i = 0; i < 30; i++)
  next[`app/${i === 0 ? '' : `page-${i}/`}page.jsx`] =
    `import { useId } from 'react';\nexport default function Page() {\n  return <h1 id={useId()}>page ${i}</h1>;\n}\n`;

/** What Vite's starter for React asks for: today's generation bundles with native code, the one before with Rollup. */
const generations = {
  8: { vite: '^8.0.0', '@vitejs/plugin-react': '^6.0.0' },
  7: { vite: '^7.0.0', '@vitejs/plugin-react': '^5.0.0' },
};

const vite = (generation) => ({
  'package.json': JSON.stringify({
    name: 'site',
    version: '1.0.0',
    private: true,
    type: 'module',
    scripts: { build: 'vite build' },
    dependencies: {
      react: '^19.0.0',
      'react-dom': '^19.0.0',
      '@mui/material': '^7.0.0',
      '@emotion/react': '^11.14.0',
      '@emotion/styled': '^11.14.0',
    },
    devDependencies: generations[generation],
  }),
  'vite.config.js': `import react from '@vitejs/plugin-react';\nexport default { plugins: [react()] };\n`,
  'index.html': '<!doctype html><div id="root"></div><script type="module" src="/main.jsx"></script>\n',
  'main.jsx': `import { createRoot } from 'react-dom/client';\nimport { Button } from '@mui/material';\ncreateRoot(document.getElementById('root')).render(<Button>hello</Button>);\n`,
});

const compiler = (include, more) =>
  JSON.stringify({
    compilerOptions: {
      // Where the starter has it: what a type check left, its next run goes on with.
      tsBuildInfoFile: `./node_modules/.tmp/${include[0].replace(/\W/g, '-')}.tsbuildinfo`,
      ...{
        target: 'ES2022',
        module: 'ESNext',
        moduleResolution: 'bundler',
        skipLibCheck: true,
        strict: true,
      },
      ...{ noEmit: true, allowImportingTsExtensions: true, ...more },
    },
    include,
  });

const twelve = Array.from({ length: 12 }, (_, i) => i);
const part = (i) =>
  `import { useState } from 'react';\nexport default function Part() {\n  const [count, set] = useState<number>(${i});\n  return <button onClick={() => set(count + 1)}>{count}</button>;\n}\n`;

/** As Vite's own starter for React and TypeScript makes one: types are checked, then it is bundled. */
const viteSmall = (generation) => ({
  'package.json': JSON.stringify({
    name: 'site',
    version: '1.0.0',
    private: true,
    type: 'module',
    scripts: { build: 'tsc -b && vite build' },
    dependencies: { react: '^19.0.0', 'react-dom': '^19.0.0' },
    devDependencies: {
      ...generations[generation],
      typescript: generation >= 8 ? '~7.0.0' : '~5.9.0',
      ...{ '@types/node': '^24.0.0', '@types/react': '^19.0.0', '@types/react-dom': '^19.0.0' },
    },
  }),
  'tsconfig.json': JSON.stringify({
    files: [],
    references: [{ path: './tsconfig.app.json' }, { path: './tsconfig.node.json' }],
  }),
  'tsconfig.app.json': compiler(['src'], {
    lib: ['ES2022', 'DOM', 'DOM.Iterable'],
    jsx: 'react-jsx',
    types: ['vite/client'],
  }),
  'tsconfig.node.json': compiler(['vite.config.ts'], { lib: ['ES2023'], types: ['node'] }),
  'vite.config.ts': `import { defineConfig } from 'vite';\nimport react from '@vitejs/plugin-react';\nexport default defineConfig({ plugins: [react()] });\n`,
  'index.html': '<!doctype html><div id="root"></div><script type="module" src="/src/main.tsx"></script>\n',
  'src/main.tsx': `import { createRoot } from 'react-dom/client';\nimport App from './App.tsx';\nimport './app.css';\ncreateRoot(document.getElementById('root')!).render(<App />);\n`,
  'src/app.css': 'body { font-family: sans-serif; }\n',
  ...Object.fromEntries(twelve.map((i) => [`src/Part${i}.tsx`, part(i)])),
  'src/App.tsx': `${twelve.map((i) => `import Part${i} from './Part${i}.tsx';`).join('\n')}\nexport default function App() {\n  return <main>${twelve.map((i) => `<Part${i} />`).join('')}</main>;\n}\n`,
});

const express = {
  'package.json': JSON.stringify({
    name: 'shop',
    version: '1.0.0',
    private: true,
    scripts: { start: 'node app.js' },
    dependencies: { express: '^5.1.0' },
  }),
  'app.js': `const app = require('express')();\napp.get('/', (request, response) => response.send('hello'));\napp.listen(process.env.PORT);\n`,
};

const go = {
  'go.mod': 'module example.org/hello\n\ngo 1.21\n',
  'main.go': `package main

import (
	"encoding/json"
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("/", func(answer http.ResponseWriter, request *http.Request) {
		_ = json.NewEncoder(answer).Encode(map[string]string{"path": request.URL.Path})
	})
	_ = http.ListenAndServe(":"+os.Getenv("PORT"), nil)
}
`,
};

const flask = {
  'requirements.txt': 'flask==3.1.3\ngunicorn==23.0.0\nrequests==2.32.5\npydantic==2.12.0\n',
  'app.py': 'from flask import Flask\n\napp = Flask(__name__)\n',
};

/**
 * `edit`: the file that somebody has changed before the warm build. `rounds`: for one at size 1; what takes long has fewer.
 */
export const projects = [
  {
    ...{ name: 'express', files: express, lock: true, hand: npm(''), output: '.', rounds: 3 },
    edit: 'app.js',
  },
  ...[8, 7].map((generation) => ({
    name: `vite ${generation} small`,
    files: viteSmall(generation),
    ...{ lock: true, hand: npm('npm run build'), output: 'dist', rounds: 3, edit: 'src/Part3.tsx' },
  })),
  {
    ...{ name: 'flask', files: flask, output: '.', rounds: 3, edit: 'app.py' },
    hand: 'python3 -m pip install -q --root-user-action=ignore --target .nebo/python -r requirements.txt',
  },
  ...[8, 7].map((generation) => ({
    name: `vite ${generation}`,
    files: vite(generation),
    ...{ lock: true, hand: npm('npm run build'), output: 'dist', rounds: 1, edit: 'main.jsx' },
  })),
  {
    ...{ name: 'next', files: next, lock: true, hand: npm('npm run build'), output: 'out', rounds: 1 },
    edit: 'app/page-3/page.jsx',
  },
  {
    ...{ name: 'go', files: go, output: '.', rounds: 1, edit: 'main.go' },
    hand: `CGO_ENABLED=0 go build -buildvcs=false -ldflags='-w -s' -o out .`,
  },
];

/** A line that changes a file and nothing that it does. */
export const edited = (path, text) => (path.endsWith('.py') ? `# changed\n${text}` : `// changed\n${text}`);
