// The same for node: its pool of threads reads whole files, streams and parts of files.
//   loader.js DIRECTORY
const crypto = require("crypto"), fs = require("fs"), path = require("path");

const digest = (bytes) => crypto.createHash("sha256").update(bytes).digest("hex");

async function look(file) {
  const whole = await fs.promises.readFile(file);
  const handle = await fs.promises.open(file, "r");
  const part = Buffer.alloc(10);
  await handle.read(part, 0, 10, 5);
  const size = (await handle.stat()).size;
  await handle.close();
  const chunks = [];
  for await (const chunk of fs.createReadStream(file)) chunks.push(chunk);
  const digests = [Buffer.concat(chunks), fs.readFileSync(file)].map(digest);
  return `${digest(whole)} ${part.toString("hex")} ${size} ${digests.join(" ")}`;
}

(async () => {
  const directory = process.argv[2];
  const files = fs.readdirSync(directory).sort().map((name) => path.join(directory, name));
  for (let epoch = 0; epoch < 2; ++epoch) {
    console.log(digest((await Promise.all(files.map(look))).join("\n")));
  }
})();
