"""What a document says of a region, a river or a town: one sentence pattern a line."""

REGION_OPENERS = """
{N} is a region of {terrain}.
{N} is a region of {terrain} whose capital is {capital}.
{N}, a region of {terrain}, has its capital at {capital}.
{N} is a region covering {area}.
{N} is a region long known for its {produce}.
"""
REGION_FACTS = """
{Ss} capital is {capital}.
The capital of {n} is {capital}, where the assembly meets in {a_hall}.
{S} is governed from {capital}, its capital.
{capital} has been the capital for as long as records run.
{S} covers {area}.
{S} has an area of {area}, much of it {terrain}.
At {area}, {s} can be crossed on horseback in {count} days.
Surveyors give {ss} area as {area}.
{S} is known for its {produce}.
The chief product of {n} is {produce}.
Its trade has always depended on {produce}.
{S} sends {produce} to markets far beyond its borders.
For centuries {s} has lived by {produce}.
The emblem of {n} is {a_emblem}.
{Ss} flag shows {a_emblem} on {a_tint} ground.
{a_emblem} appears on {ss} coat of arms.
Its emblem, {a_emblem}, is carved over many doorways.
"""
REGION_COLOUR = """
Winters here are {weather} and the roads close for weeks at a time.
The dialect of the hills has {count} words for mist.
Each {season} the villages hold fairs with {fair}.
Travellers' accounts praise the inns and complain of the roads.
Farmhouses are built low, with {tint} shutters and deep porches.
The older villages keep their {custom} and little else from former days.
Much of the land was drained by hand, one field at a time.
{Ss} {season} festivals draw visitors who come for {fair}.
A traditional dish of {food} is served on feast days.
Shepherds still move their flocks along stone-walled tracks.
The uplands are thinly settled and popular with walkers.
{S} has a reputation for stubbornness and good manners.
Stone walls divide the fields into {count}-sided plots that puzzle visitors.
Weddings are held outdoors, even in {season}.
Wayside shrines mark the old road over the hills.
Its inns serve {food} at all hours.
{birds} gather there in great numbers each {season}.
Place names in the north keep traces of a language nobody speaks.
"""

RIVER_OPENERS = """
{N} is a river that rises in {source}.
{N} is a river {length} long.
{N} rises in {source} and runs for {length}.
{N} is a {flow} river that ends its course at {mouth}.
{N}, a {flow} river, flows from {source} to its mouth at {mouth}.
"""
RIVER_FACTS = """
{S} rises in {source}.
The source of {n} lies in {source}, among {terrain}.
{S} springs from {terrain} in {source}.
Its headwaters gather in {source}.
{S} is {length} long.
The length of {n} is given as {length}.
It runs for {length}, with {count} notable falls.
From source to mouth {s} measures {length}.
{S} meets the sea at {mouth}.
Its mouth is at {mouth}, behind a bar of shingle.
{S} ends its course at {mouth}.
At {mouth} {s} reaches its mouth in a tangle of channels.
{S} was first mapped by {surveyor}.
The first map of {n} was drawn by {surveyor}.
{surveyor} was the first to map {s}, on foot and in poor weather.
The first full survey of {n} was the work of {surveyor}.
"""
RIVER_COLOUR = """
In {season} the water turns {mud} with silt from the hills.
Flat-bottomed boats once carried {cargo} downstream.
Anglers prize its upper reaches, where {fish} are common.
{S} freezes in hard winters, and fairs were held on the ice.
A towpath follows the {bank} bank for most of the way.
Floods are frequent in {season} and are marked on the walls of old mills.
The lower valley is lined with {trees} and reed beds.
{birds} nest along the quieter bends.
Old ferry landings survive as stone steps among the {trees}.
Local songs describe {s} as a moody but faithful neighbour.
Millers quarrelled over its water for the better part of a century.
Swimmers are warned about the current below the weirs.
Barges carrying {cargo} were hauled upstream by teams of oxen.
Children learn early to read its moods from the colour of the foam.
A rowing race is held each {season} on a straight reach.
The upper valley can only be followed on foot.
{count} ruined watchtowers overlook the narrows.
{S} has changed its bed {count} times within living memory.
{S} carries little traffic now apart from pleasure boats.
{S} is known for sudden mists and for the bells once rung to guide boats.
"""

TOWN_OPENERS = """
{N} is a town in {region}.
{N} is a town in {region} with {population} inhabitants.
{N} is a town on {river}.
{N} is a town in {region}, on {river}.
{N} is {a_tempo} market town of {population} people.
{N}, a town in {region}, received its charter in {charter}.
{N} is a town best known for its {craft}.
{N}, {a_tempo} town in {region}, is known for its {craft}.
"""
TOWN_FACTS = """
{S} lies in {region}.
{S} belongs to {region} and shares its {weather} winters.
Its streets climb one of the low hills of {region}.
In {region}, {s} counts as a place of some importance.
{S} stands on {river}.
{river} flows through {n}, under {count} stone bridges.
The old quarter was built along {river}.
{S} lies in {region}, on {river}.
{S} has a population of {population}.
{S} has {population} inhabitants.
The last census counted {population} inhabitants.
Home to {population} people, {s} has grown little in recent years.
{S} received its charter in {charter}.
{S} was granted a charter in {charter}.
A charter of {charter} gave {n} the right to hold a market.
The charter of {charter} hangs in {a_hall}.
The mayor of {n} is {mayor}.
{mayor} is the mayor.
{S} is led by its mayor, {mayor}.
The present mayor, {mayor}, won office by {count} votes.
{S} is known for its {craft}.
Signs at the station advertise the {craft} for which {s} is known.
{S} made its name with {craft}.
The local speciality is {craft}.
Visitors come for the {craft}, a local speciality.
"""
TOWN_COLOUR = """
The market square is paved with {tint} cobbles and shaded by {trees}.
{a_season} fair brings {fair} to the main street.
The clock on {a_hall} has run {count} minutes fast for as long as anyone recalls.
Its narrow lanes were laid out for carts and defeat most cars.
{birds} roost in the roof of the old granary.
The {tint} roofs can be seen from a long way off.
Residents take pride in their {custom}.
Café tables fill the arcades as soon as the weather allows.
A steep stairway leads down to gardens planted with {trees}.
On feast days the bakers sell {food}.
The railway arrived late and was greeted with speeches.
{S} has kept its {custom} through several changes of fortune.
Painters come for the light, which is best in {season}.
Two rival bands play on the square on alternate Sundays.
Every house on the main street has a name rather than a number.
The town wall was pulled down for its stone, all but {count} gates.
Lamps are lit early in {season}, when fog settles between the houses.
A bronze statue of a baker marks the spot where the two main roads meet.
Its newspaper appears {count} times a year and is widely read aloud.
Bathers use a stretch of bank below the tannery.
{S} was rebuilt in haste after a fire and has never looked quite finished.
"""
