# what: node: fs sync, callback, promises, streams, handles, opendir, copyFile, child_process with
#   files, worker_threads, require and ES modules
# needs: command node
# version: node --version
# run
cd "$DATA" || exit 1
cat > text/prog.js <<'END'
const fs = require('fs'), p = require('fs/promises'), zlib = require('zlib'),
  crypto = require('crypto'), cp = require('child_process'), path = require('path');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { pipeline } = require('stream/promises');
const sum = b => b.length + ' ' + crypto.createHash('md5').update(b).digest('hex');
if (!isMainThread) { parentPort.postMessage(workerData.map(f => sum(fs.readFileSync(f)))); return; }
const files = ['text', 'binary', 'names'].flatMap(d =>
  fs.readdirSync(d).sort().map(f => path.join(d, f))).filter(f => !f.endsWith('js'));
(async () => {
  const a = files.map(f => sum(fs.readFileSync(f))),
    b = await Promise.all(files.map(async f => sum(await p.readFile(f))));
  const c = await Promise.all(files.map(f =>
    new Promise((yes, no) => fs.readFile(f, (e, d) => e ? no(e) : yes(sum(d))))));
  const d = await Promise.all(files.map(f => new Promise(yes => {
    const all = [];
    fs.createReadStream(f, { highWaterMark: 5000 }).on('data', x => all.push(x))
      .on('end', () => yes(sum(Buffer.concat(all))));
  })));
  const e = await Promise.all([0, 1].map(() =>
    new Promise(yes => new Worker(__filename, { workerData: files }).on('message', yes))));
  console.log(a.join('\n'), [b, c, d, ...e].map(x => x.join() == a.join()));
  const fd = fs.openSync('text/numbers'), buffer = Buffer.alloc(20);
  console.log(fs.readSync(fd, buffer, 0, 10, null), fs.readSync(fd, buffer, 0, 10, 100),
    buffer.toString(), fs.fstatSync(fd).size, fs.readSync(fd, buffer, 0, 5, null),
    buffer.toString());
  fs.closeSync(fd);
  const h = await p.open('text/table');
  console.log((await h.read(buffer, 0, 20)).bytesRead, buffer.toString(), (await h.stat()).size,
    (await h.readFile('utf8')).length);
  await h.close();
  const lines = [];
  const input = fs.createReadStream('text/words', { start: 10, end: 60 });
  for await (const l of require('readline').createInterface({ input })) lines.push(l);
  console.log(lines);
  const v = await p.open('binary/65536'); const parts = [Buffer.alloc(10), Buffer.alloc(20)];
  console.log((await v.readv(parts, 5)).bytesRead, sum(Buffer.concat(parts))); await v.close();
  fs.copyFileSync('binary/65536', process.env.OUT + '/copied');
  await p.copyFile('text/words', 'text/copied'); console.log(sum(fs.readFileSync('text/copied')));
  fs.cpSync('tree', process.env.OUT + '/tree', { recursive: true, verbatimSymlinks: true });
  await pipeline(fs.createReadStream('binary/100001'), zlib.createGzip(), zlib.createGunzip(),
    fs.createWriteStream('text/piped'));
  console.log(sum(fs.readFileSync('text/piped')));
  fs.writeFileSync('text/one', 'new'); console.log(fs.readFileSync('text/one', 'utf8'));
  fs.appendFileSync('text/one', ' more'); console.log(await p.readFile('text/one', 'utf8'));
  fs.truncateSync('text/one', 2); console.log(fs.readFileSync('text/one', 'utf8'));
  fs.renameSync('text/one', 'text/two');
  console.log(fs.existsSync('text/one'), fs.readFileSync('text/two', 'utf8'));
  const rw = fs.openSync('text/two', 'r+'); fs.writeSync(rw, 'XY', 1);
  console.log(fs.readFileSync(rw, 'utf8')); fs.closeSync(rw);
  fs.rmSync('tree/0', { recursive: true });
  for (const f of ['text/absent', 'tree/0/0/file_00.txt', 'text']) {
    try { fs.readFileSync(f); } catch (x) { console.log(x.code); }
    await p.readFile(f).catch(x => console.log(x.code));
  }
  const stdin = fs.openSync('text/numbers'); fs.readSync(stdin, buffer, 0, 6, null);
  console.log(
    cp.spawnSync('head', ['-c', '8'], { stdio: [stdin, 'pipe', 'pipe'] }).stdout.toString(),
    cp.execSync('wc -c', { stdio: [stdin, 'pipe'] }).toString(),
    cp.execFileSync('cat', ['text/two']).toString(), fs.readSync(stdin, buffer, 0, 5, null));
  const kid = cp.spawn('cat', { stdio: [fs.openSync('text/two'), 'pipe', 2] });
  for await (const x of kid.stdout) console.log(x.toString());
  console.log(cp.spawnSync(process.execPath,
    ['-e', 'console.log(require("fs").readFileSync(3, "utf8"))'],
    { stdio: ['ignore', 'pipe', 2, fs.openSync('text/two')] }).stdout.toString());
  const server = require('http').createServer((q, r) =>
    fs.createReadStream('binary/65536').pipe(r)).listen(0, async () => {
    const get = await new Promise(yes => require('http').get({ port: server.address().port }, r => {
      const all = []; r.on('data', x => all.push(x)).on('end', () => yes(Buffer.concat(all)));
    }));
    console.log(sum(get)); server.close();
    console.log(require('./other.js'), require('./data.json').k,
      (await import(path.resolve('text/module.mjs'))).default);
  });
})();
END
echo 'module.exports = __filename.slice(-8)' > text/other.js; echo '{"k": [1, 2]}' > text/data.json
echo "import { readFileSync } from 'fs';" \
  "export default readFileSync(new URL('no_newline', import.meta.url), 'utf8')" > text/module.mjs
{ node text/prog.js && UV_USE_IO_URING=1 UV_THREADPOOL_SIZE=2 node -e '
const p = require("fs/promises"); p.readFile("text/words").then(b => console.log(b.length));
p.readFile("binary/large").then(b => console.log(b.length))' | sort; } || exit 1
node < text/other.js; node text/absent.js 2> /dev/null; echo "status $?"
exit 0
