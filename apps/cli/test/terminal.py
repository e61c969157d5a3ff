"""Runs a command on a terminal of its own: terminal.py ANSWER COMMAND… — types ANSWER at the first prompt, prints what was shown."""
import os, pty, select, sys, time

answer, command = sys.argv[1], sys.argv[2:]
pid, master = pty.fork()
if pid == 0:
    os.execvp(command[0], command)
seen, typed, end = b'', answer == '', time.time() + 20
while time.time() < end:
    ready, _, _ = select.select([master], [], [], 0.2)
    if ready:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    if not typed and (b'? ' in seen or b'): ' in seen or b'] ' in seen):
        time.sleep(0.1)
        os.write(master, answer.encode().decode('unicode_escape').encode())
        typed = True
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(status))
