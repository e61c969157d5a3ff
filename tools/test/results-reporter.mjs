import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Jest reporter that leaves a project's counts in `test-results.json`, a cached output: `npm test` adds them up. */
export default class ResultsReporter {
  constructor(globalConfig) {
    this.folder = globalConfig.rootDir;
  }

  onRunComplete(
    _contexts,
    { numPassedTests, numFailedTests, numPendingTests, numTodoTests, numRuntimeErrorTestSuites, testResults },
  ) {
    const skipped = testResults.flatMap((file) =>
      file.testResults
        .filter((test) => test.status === 'pending' || test.status === 'todo')
        .map((test) => test.fullName),
    );
    const counts = {
      passed: numPassedTests,
      failed: numFailedTests + numRuntimeErrorTestSuites,
      skipped: numPendingTests + numTodoTests,
    };
    writeFileSync(
      join(this.folder, 'test-results.json'),
      `${JSON.stringify({ ...counts, skippedTests: skipped }, null, 2)}\n`,
    );
  }
}
