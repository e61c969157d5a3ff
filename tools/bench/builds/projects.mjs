/** Sources that are built: files by path, and the commands that a person would give by hand. */

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

const vite = {
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
    devDependencies: { vite: '^7.0.0', '@vitejs/plugin-react': '^5.0.0' },
  }),
  'vite.config.js': `import react from '@vitejs/plugin-react';\nexport default { plugins: [react()] };\n`,
  'index.html': '<!doctype html><div id="root"></div><script type="module" src="/main.jsx"></script>\n',
  'main.jsx': `import { createRoot } from 'react-dom/client';\nimport { Button } from '@mui/material';\ncreateRoot(document.getElementById('root')).render(<Button>hello</Button>);\n`,
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

export const projects = [
  {
    name: 'go',
    files: go,
    hand: `CGO_ENABLED=0 go build -buildvcs=false -ldflags='-w -s' -o out .`,
    output: '.',
  },
  {
    name: 'next',
    files: next,
    lock: true,
    hand: 'npm ci --no-audit --no-fund && npm run build',
    output: 'out',
  },
  {
    name: 'vite',
    files: vite,
    lock: true,
    hand: 'npm ci --no-audit --no-fund && npm run build',
    output: 'dist',
  },
  {
    name: 'flask',
    files: flask,
    hand: 'python3 -m pip install -q --root-user-action=ignore --target .nebo/python -r requirements.txt',
    output: '.',
  },
];
